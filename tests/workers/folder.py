"""How a worker process is told the folder of its test."""

FOLDER_VARIABLE = 'TEST_WORKER_FOLDER'
