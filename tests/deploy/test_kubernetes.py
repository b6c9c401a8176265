from __future__ import annotations

import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from harness_temporal.hosting.section import Section
from harness_temporal.hosting.settings import TemporalSettings, WorkerSettings
from tests.deploy.files import DEPLOY, documents
from workers.drain import AFTER_GRACE_SECONDS
from workers.readiness import CHECK_TIMEOUT

KUBERNETES = DEPLOY / 'kubernetes'
OLDEST = '1.30'
"""The oldest Kubernetes that the manifests are for: the schemas begin there."""
NEWEST = kubernetes_validate.latest_version()
BASE = [document for path in sorted((KUBERNETES / 'base').glob('*.yaml')) for document in documents(path)]
OF_KUBERNETES = [document for document in BASE if document['kind'] != 'Kustomization']
[TOP] = documents(KUBERNETES / 'kustomization.yaml')


def of_kind(kind: str, among: list[dict[str, Any]] = BASE) -> dict[str, Any]:
    [found] = [document for document in among if document['kind'] == kind]
    return found


def pods() -> list[dict[str, Any]]:
    return [of_kind('Deployment')['spec']['template']['spec'], of_kind('Job')['spec']['template']['spec']]


def settings() -> dict[str, str]:
    [generator] = TOP['configMapGenerator']
    return {name: value for name, _, value in (literal.partition('=') for literal in generator['literals'])}


@pytest.mark.parametrize('version', [OLDEST, NEWEST])
@pytest.mark.parametrize('resource', OF_KUBERNETES, ids=lambda resource: resource['kind'])
def test_resources_are_what_kubernetes_allows(resource: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize('folder', ['.', 'base', 'autoscaling', 'monitoring'])
def test_a_kustomization_names_the_files_that_are_there(folder: str) -> None:
    [kustomization] = documents(KUBERNETES / folder / 'kustomization.yaml')
    named = {name for key in ('resources', 'components', 'configurations') for name in kustomization.get(key, ())}
    there = {path.name for path in (KUBERNETES / folder).iterdir()} - {'kustomization.yaml'}
    assert named == there


def test_settings_are_the_workers() -> None:
    sections: list[type[Section]] = [WorkerSettings, TemporalSettings]
    known = {section.variable(name) for section in sections for name in section.model_fields}
    assert settings().keys() <= known


def test_a_worker_has_the_time_to_drain() -> None:
    drain = float(settings()['HARNESS_GRACEFUL_SHUTDOWN_SECONDS']) + AFTER_GRACE_SECONDS
    assert pods()[0]['terminationGracePeriodSeconds'] > drain


def test_probes_wait_longer_than_what_they_ask() -> None:
    [worker] = pods()[0]['containers']
    assert worker['readinessProbe']['timeoutSeconds'] > CHECK_TIMEOUT
    paths = {probe: worker[probe]['httpGet']['path'] for probe in ('startupProbe', 'livenessProbe', 'readinessProbe')}
    # A worker whose store is away is not restarted.
    assert paths == {'startupProbe': '/livez', 'livenessProbe': '/livez', 'readinessProbe': '/readyz'}


def test_no_pod_may_do_more_than_it_needs() -> None:
    for pod in pods():
        assert pod['securityContext']['runAsNonRoot'] is True
        assert pod['automountServiceAccountToken'] is False
        for container in pod['containers']:
            assert container['securityContext'] == {
                'allowPrivilegeEscalation': False,
                'readOnlyRootFilesystem': True,
                'capabilities': {'drop': ['ALL']},
            }
            assert container['resources']['requests'].keys() == {'cpu', 'memory'}
            assert 'memory' in container['resources']['limits']


def test_secrets_are_not_here() -> None:
    assert not [document for document in BASE if document['kind'] == 'Secret']
    for pod in pods():
        for container in pod['containers']:
            assert {'secretRef': {'name': 'worker-secrets'}} in container['envFrom']
            assert 'env' not in container


@pytest.fixture(scope='module')
def rendered() -> list[dict[str, Any]]:
    kubectl = shutil.which('kubectl')
    if kubectl is None:
        pytest.skip('kubectl is not here to render the kustomization')
    done = subprocess.run([kubectl, 'kustomize', str(KUBERNETES)], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def test_the_rendered_build_fits_together(rendered: list[dict[str, Any]]) -> None:
    for resource in rendered:
        if resource['kind'] not in ('ScaledObject', 'PodMonitor'):
            kubernetes_validate.validate(resource, NEWEST, strict=True)
    deployment, scaled = of_kind('Deployment', rendered), of_kind('ScaledObject', rendered)
    pod_labels = deployment['spec']['template']['metadata']['labels']
    for kind in ('PodDisruptionBudget', 'PodMonitor'):
        assert of_kind(kind, rendered)['spec']['selector']['matchLabels'].items() <= pod_labels.items()
    assert of_kind('NetworkPolicy', rendered)['spec']['podSelector']['matchLabels'].items() <= pod_labels.items()
    # Another build is beside this one: what is selected by its budget, scaler and monitor is its own.
    build = settings()['HARNESS_BUILD_ID']
    assert pod_labels['app.kubernetes.io/version'] == build
    assert deployment['metadata']['name'] == f'worker-{build}' == scaled['spec']['scaleTargetRef']['name']
    [trigger] = scaled['spec']['triggers']
    assert trigger == {
        'type': 'temporal',
        'metadata': {
            'endpoint': settings()['TEMPORAL_ADDRESS'],
            'namespace': settings()['TEMPORAL_NAMESPACE'],
            'taskQueue': settings()['HARNESS_TASK_QUEUE'],
            'queueTypes': 'workflow,activity',
            'workerDeploymentName': settings()['HARNESS_DEPLOYMENT_NAME'],
            'workerDeploymentBuildId': build,
            'targetQueueSize': '20',
            'activationTargetQueueSize': '0',
        },
    }
    config = of_kind('ConfigMap', rendered)
    [worker] = deployment['spec']['template']['spec']['containers']
    assert {'configMapRef': {'name': config['metadata']['name']}} in worker['envFrom']
    assert worker['image'] == 'registry.example.com/harness-temporal-worker:v1'
