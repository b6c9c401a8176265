"""The settings: `harness.toml` and, over it, environment variables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_ai.agent import AbstractAgent
from pydantic_settings import NoDecode, SettingsConfigDict

from harness_temporal.conversations import BaseConversationStore
from harness_temporal.hosting.agents import load_agents
from harness_temporal.hosting.section import Section
from harness_temporal.loading import load_attribute
from harness_temporal.temporal import MaintenanceInput
from harness_temporal.temporal.payloads import PayloadStorage

Seconds = Annotated[float, Field(gt=0, le=86_400)]


def _with_port(address: str) -> str:
    _, colon, port = address.rpartition(':')
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError('give a host and a port, such as `temporal:7233`, or `:8080` for all of this machine')
    return address


Address = Annotated[str, AfterValidator(_with_port)]


class TemporalSettings(Section):
    """Where Temporal is, and who we are to it: the table `temporal`. Temporal's own tools know the same variables."""

    model_config = SettingsConfigDict(env_prefix='TEMPORAL_')
    table: ClassVar[str] = 'temporal'

    address: Address = 'localhost:7233'
    """Host and port of the frontend; on Temporal Cloud that of the namespace or the region."""
    namespace: str = 'default'
    api_key: SecretStr | None = None
    """For Temporal Cloud; turns on TLS."""
    tls: bool | None = None
    """By default on if there is an API key or anything else about TLS."""
    tls_client_cert_path: Path | None = None
    """The certificate for mutual TLS, as PEM."""
    tls_client_key_path: Path | None = None
    """Its key, as PEM."""
    tls_server_ca_cert_path: Path | None = None
    """What the server's certificate is checked with; by default what the system trusts."""
    tls_server_name: str | None = None
    """The name in the server's certificate, if it is not the host's."""

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        if self.tls is not None:
            return self.tls
        return any((self.api_key, self.tls_client_cert_path, self.tls_server_ca_cert_path, self.tls_server_name))

    @model_validator(mode='after')
    def _check(self) -> Self:
        if (self.tls_client_cert_path is None) != (self.tls_client_key_path is None):
            raise ValueError('TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH go together.')
        if self.tls is False and (self.api_key or self.tls_client_cert_path):
            raise ValueError('TEMPORAL_TLS is off, and a credential would go over the network unencrypted.')
        return self


def _days(number: float | None) -> timedelta | None:
    return timedelta(days=number) if number is not None else None


class WorkerSettings(Section):
    """What a worker runs, and how: the table `worker`."""

    model_config = SettingsConfigDict(env_prefix='HARNESS_')
    table: ClassVar[str] = 'worker'

    agents: Annotated[
        tuple[str, ...],
        NoDecode,
        Field(min_length=1, description='the agents to run, as `module:attribute`, or all of a `module`.'),
    ]
    """The agents to run, as `module:attribute`, or `module` for all that have `HarnessDurability`; in the variable
    separated by commas."""
    payloads: str | None = None
    """The `PayloadStorage`, as `module:attribute`: where large payloads go, and their keys."""
    conversations: str | None = None
    """The conversation store, as `module:attribute`: what `expire_conversations_after_days` is about."""
    task_queue: str = Field('harness', min_length=1)

    build_id: str = Field('dev', min_length=1)
    """Names this build of the worker."""
    deployment_name: str | None = Field(None, pattern=r'^[^.\s]+$')
    """Turns on Temporal's worker versioning: workflows go to builds of this deployment."""
    versioning: Literal['pinned', 'auto-upgrade'] = 'pinned'
    """Whether a workflow stays with the build it began on, or goes on with the current one."""

    max_concurrent_activities: int = Field(100, ge=1, le=10_000)
    """Model requests and tool calls at once."""
    max_concurrent_workflow_tasks: int = Field(8, ge=2, le=10_000)
    """They all need the interpreter: many at once all take longer than the server waits for one."""
    max_cached_workflows: int = Field(1000, ge=0, le=1_000_000)
    """Workflows that are kept in memory between their tasks. Others are replayed from their history."""
    max_pollers: int = Field(100, ge=2, le=1000)
    """Requests for work that may be open at once, of each kind. Their number follows the load."""
    graceful_shutdown_seconds: Seconds = 30
    """How long running activities may take to finish after SIGTERM. What is left then is taken up by another worker."""

    maintenance: bool = False
    """Have a schedule collect what nothing in the stores refers to."""
    expire_after_days: float | None = Field(None, gt=0, le=100_000)
    """With `maintenance`, also delete runs that were idle that long."""
    expire_conversations_after_days: float | None = Field(None, gt=0, le=100_000)
    """With `maintenance` and `conversations`, also delete conversations that were idle that long, with their runs."""
    expire_payloads_after_days: float | None = Field(None, gt=0, le=100_000)
    """With `maintenance`, also delete pieces of payloads that were not touched for that long. More than the longest
    run, the namespace's retention and two hours together."""
    maintenance_hours: float = Field(24, gt=0, le=100_000)
    """How often."""

    log_level: Literal['DEBUG', 'INFO', 'WARNING', 'ERROR'] = 'INFO'
    log_format: Literal['auto', 'json', 'text'] = 'auto'
    """`auto` is text on a terminal and JSON elsewhere."""
    http_address: Address | None = None
    """Where `/livez`, `/readyz` and `/metrics` are served, such as `:8080`."""
    sdk_metrics_address: Address | None = None
    """Where Temporal's SDK serves its own metrics, under `/metrics`."""
    tracing: bool = False
    """Send spans over OTLP, as the `OTEL_…` variables say."""

    @field_validator('agents', mode='before')
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(filter(None, (name.strip() for name in value.split(',')))) if isinstance(value, str) else value

    @field_validator('log_level', mode='before')
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @model_validator(mode='after')
    def _check(self) -> Self:
        if self.deployment_name is not None and 'build_id' not in self.model_fields_set:
            raise ValueError(
                'HARNESS_DEPLOYMENT_NAME needs HARNESS_BUILD_ID: builds of a deployment are told apart by it.'
            )
        for name in ('expire_after_days', 'expire_conversations_after_days', 'expire_payloads_after_days'):
            if getattr(self, name) is not None and not self.maintenance:
                raise ValueError(f'{self.variable(name)} needs HARNESS_MAINTENANCE=on.')
        if self.expire_conversations_after_days is not None and self.conversations is None:
            raise ValueError('HARNESS_EXPIRE_CONVERSATIONS_AFTER_DAYS needs HARNESS_CONVERSATIONS.')
        return self

    @property
    def maintenance_input(self) -> MaintenanceInput | None:
        """What is deleted on the schedule; `None` without one."""
        if not self.maintenance:
            return None
        return MaintenanceInput(
            idle_for=_days(self.expire_after_days),
            payloads_untouched_for=_days(self.expire_payloads_after_days),
            conversations_idle_for=_days(self.expire_conversations_after_days),
        )

    def load_agents(self) -> list[AbstractAgent[Any, Any]]:
        """Import the agents.

        Raises:
            ConfigurationError: A name leads to no agent.
        """
        return load_agents(self.agents)

    def load_payloads(self) -> PayloadStorage | None:
        """Import the payload storage, if there is one.

        Raises:
            ConfigurationError: The name does not lead to one.
        """
        return load_attribute(self.payloads, PayloadStorage) if self.payloads is not None else None

    def load_conversations(self) -> BaseConversationStore | None:
        """Import the conversation store, if there is one.

        Raises:
            ConfigurationError: The name does not lead to one.
        """
        return load_attribute(self.conversations, BaseConversationStore) if self.conversations is not None else None


class CallerSettings(WorkerSettings):
    """The table `worker` for whoever asks workers for something, and needs no agents of its own."""

    agents: Annotated[tuple[str, ...], NoDecode] = ()
