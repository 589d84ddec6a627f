"""`dlrover-run --platform=kubernetes`: the objects of the job made, followed and taken away again.

There is no manager of ours here: the Job's controller makes pods again, wherever this process is.
It shows what they print, keeps their logs, and ends with the job's own exit code. If it is stopped,
it takes the job with it; if it is killed, the job goes on.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dlrover_cli.config.derive import parse_signals
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.launch.interrupted import interruptible
from dlrover_cli.launch.notifying import notify_of, shown_argv
from dlrover_cli.launch.outcome import RunReport, reporting
from dlrover_cli.launch.script import name_of_script
from dlrover_cli.launch.session import Session, open_session
from dlrover_cli.launch.voice import insist, say
from dlrover_cli.platforms.kubernetes.connecting import connect
from dlrover_cli.platforms.kubernetes.ending import Ending
from dlrover_cli.platforms.kubernetes.faults import KubernetesError
from dlrover_cli.platforms.kubernetes.following import Follower
from dlrover_cli.platforms.kubernetes.logs import PodLogs, show_on_console
from dlrover_cli.platforms.kubernetes.manifests import manifests
from dlrover_cli.platforms.kubernetes.objects import RunObjects, delete_command
from dlrover_cli.platforms.kubernetes.replacing import NodeReplacement
from dlrover_cli.platforms.kubernetes.request import Request, request_of

AGENT = "submitter"


class KubernetesJobFailed(DlroverError):
    """The job has ended, and not with success."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.exit_code = ending.exit_code


def plan(settings: LaunchSettings, argv: Sequence[str]) -> str:
    """The objects, as YAML for `kubectl apply -f -` or, with `--json`, as one List."""
    request = request_of(settings)
    objects = manifests(request, _dry_run_id(request))
    if settings.json_output:
        import json

        return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2) + "\n"
    import yaml

    head = f"# To be deleted with: {delete_command(objects)}\n"
    return head + yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=False, width=120)


def launch(settings: LaunchSettings, argv: Sequence[str]) -> None:
    """Run the job to its end. Raises KubernetesJobFailed, or what keeps it from starting."""
    report = RunReport(settings.result_file, shown_argv(settings, argv), say)
    with reporting(report):
        request = request_of(settings)
        client = connect(os.environ)
        session = open_session(
            report,
            os.environ,
            say,
            name_of_script(settings.training_script),
            agent=AGENT,
            platform="kubernetes",
            notify=notify_of(settings),
        )
        try:
            objects = RunObjects(client, request, session.run_directory.run_id)
            with interruptible(parse_signals(settings.signals_to_handle)) as raise_swallowed:
                ending = _run(objects, session)
                raise_swallowed()
            if ending.exit_code != ExitCode.SUCCESS:
                raise KubernetesJobFailed(ending)
        except BaseException as error:
            session.close(error)
            insist(f"logs, events and result: {session.run_directory.path}")
            raise
        session.close(None)


def _run(objects: RunObjects, session: Session) -> Ending:
    namespace = objects.request.namespace
    nodes = session.run_directory.path / "nodes"
    with _created(objects, session):
        logs = PodLogs(objects.client, namespace, nodes, show_on_console, session.say)
        try:
            record = session.events.record
            replacement = NodeReplacement(objects, session.say, record)
            follower = Follower(objects, session.say, logs, record, replacement=replacement)
            ending = follower.follow()
            assert ending is not None
        finally:
            logs.close()
    return ending


@contextmanager
def _created(objects: RunObjects, session: Session) -> Iterator[None]:
    """The objects are there within the block, and gone after it, whatever happens in it."""
    objects.create()  # leaves nothing if it fails
    try:
        where = f"{objects.main_kind.name} {objects.name} in the namespace "
        session.say(f"{where}{objects.request.namespace!r} of {objects.client.host}")
        session.events.record(
            "kubernetes_job", name=objects.name, namespace=objects.request.namespace
        )
        yield
    finally:
        _delete(objects, session)


def _delete(objects: RunObjects, session: Session) -> None:
    try:
        left = objects.delete()
    except KubernetesError as error:
        session.say(
            f"{error.message}; what is left of the job: {delete_command(objects.manifests)}"
        )
        return
    except BaseException:
        session.say(f"what is left of the job: {delete_command(objects.manifests)}")
        raise
    if left:
        session.say(f"pods that have not ended yet: {', '.join(left)}")


def _dry_run_id(request: Request) -> str:
    """The same for the same request, so that two plans can be compared."""
    text = repr(sorted(request.to_json().items()))
    return f"dry-run-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
