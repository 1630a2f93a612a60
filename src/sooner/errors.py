"""Every error Sooner raises on purpose, in one tree.

::

    SoonerError
    ├── AdmissionError             a job is refused; the scheduler is unchanged
    │   ├── AudioTooLongError      limit_s, actual_s
    │   ├── BacklogTooLargeError   limit_s, actual_s, retry_after_s
    │   ├── ClientLimitError       limit, actual, retry_after_s
    │   ├── QueueFullError         limit, actual, retry_after_s
    │   └── SpoolFullError         limit_bytes, actual_bytes, retry_after_s
    ├── RequestError               what the client sent cannot be served
    │   ├── AuthenticationError
    │   ├── DecodedTooLargeError   limit_bytes
    │   ├── InvalidParameterError  param
    │   ├── ModelNotFoundError     model, served
    │   ├── PriorityError          priority, highest
    │   ├── RequestIdTakenError    request_id
    │   ├── RequestNotFoundError   request_id
    │   ├── UnreadableAudioError
    │   ├── UploadTimeoutError     limit_s
    │   └── UploadTooLargeError    limit_bytes, actual_bytes
    ├── DeadlineError              the text cannot be there in time, or was not; deadline_s, late_s
    ├── RequestCancelledError      somebody who may do so cancelled it
    ├── ServiceClosedError         the server is shutting down
    ├── EngineError                the engine failed on a window
    │   └── EngineLostError        it hangs or died, and all that it was doing is lost
    ├── ConfigurationError         an option or an installation is wrong
    │   ├── LearntStateError
    │   ├── MissingExtraError      extra
    │   ├── MissingVllmError
    │   ├── ModelUnavailableError
    │   ├── ProfileError           path
    │   ├── RunFileError           path, line
    │   ├── TraceError             path, line
    │   ├── UnknownPolicyError     name, known
    │   └── UnsupportedVllmError   version, seam
    └── SchedulerUsageError        a driver broke the scheduler's contract: a bug in the caller
        ├── DuplicateJobError      job_id
        └── UnknownJobError        job_id

Errors carry data (the limit and the actual value); the message says what to do about it. Only
``server/errors.py`` knows which HTTP status belongs to which error.
"""

from __future__ import annotations

from collections.abc import Iterable


class SoonerError(Exception):
    """Base of every error that Sooner raises on purpose."""


class AdmissionError(SoonerError):
    """A job was refused at the door; nothing about the queue changed."""


class AudioTooLongError(AdmissionError):
    """The decoded audio is longer than the server accepts."""

    def __init__(self, *, limit_s: float, actual_s: float) -> None:
        super().__init__(
            f"the audio holds at least {actual_s:.1f} s, the limit is {limit_s:.1f} s; split the recording "
            "or raise --max-audio-s"
        )
        self.limit_s = limit_s
        self.actual_s = actual_s


class BacklogTooLargeError(AdmissionError):
    """The predicted work that waits, per worker, is at its limit."""

    def __init__(self, *, limit_s: float, actual_s: float) -> None:
        super().__init__(
            f"the queue holds {actual_s:.1f} s of work per worker, the limit is {limit_s:.1f} s; retry later"
        )
        self.limit_s = limit_s
        self.actual_s = actual_s
        self.retry_after_s = max(1.0, actual_s - limit_s)


class ClientLimitError(AdmissionError):
    """One client has as much on its way as one client may have."""

    def __init__(self, *, what: str, limit: float, actual: float, option: str, retry_after_s: float) -> None:
        super().__init__(
            f"you have {actual:g} {what} on their way, the limit for one client is {limit:g} ({option}); "
            f"retry in {retry_after_s:.0f} s"
        )
        self.limit = limit
        self.actual = actual
        self.retry_after_s = retry_after_s


class QueueFullError(AdmissionError):
    """As many jobs wait as the queue may hold."""

    def __init__(self, *, limit: int, actual: int, retry_after_s: float) -> None:
        super().__init__(f"{actual} jobs are waiting, the limit is {limit}; retry in {retry_after_s:.0f} s")
        self.limit = limit
        self.actual = actual
        self.retry_after_s = retry_after_s


class SpoolFullError(AdmissionError):
    """The uploads on disk take as many bytes as they may."""

    def __init__(self, *, limit_bytes: int, actual_bytes: int, retry_after_s: float) -> None:
        super().__init__(
            f"uploads hold {actual_bytes} bytes on disk, the limit is {limit_bytes}; "
            f"retry in {retry_after_s:.0f} s or raise --max-spool-bytes"
        )
        self.limit_bytes = limit_bytes
        self.actual_bytes = actual_bytes
        self.retry_after_s = retry_after_s


class RequestError(SoonerError):
    """What the client sent cannot be served as it is; sending it again will not help."""


class AuthenticationError(RequestError):
    """The request bears no key, or one that is not known here."""

    def __init__(self) -> None:
        super().__init__("no valid API key; send the header: Authorization: Bearer KEY")


class DecodedTooLargeError(RequestError):
    """The upload unpacks to more bytes than the server decodes."""

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(
            f"the upload unpacks to more than {limit_bytes} bytes of samples; send fewer channels or a lower "
            "sample rate, split the recording, or raise --max-decoded-bytes"
        )
        self.limit_bytes = limit_bytes


class InvalidParameterError(RequestError):
    """One parameter of a request is missing or has a value that is not accepted."""

    def __init__(self, message: str, *, param: str | None) -> None:
        super().__init__(message)
        self.param = param


class ModelNotFoundError(RequestError):
    """The request names a model that this server does not serve."""

    def __init__(self, *, model: str, served: Iterable[str]) -> None:
        self.model = model
        self.served = tuple(served)
        super().__init__(f"model {model!r} is not served here; use one of: {', '.join(self.served)}")


class PriorityError(RequestError):
    """The client asks for a class of priority that it may not have."""

    def __init__(self, *, priority: str, highest: str) -> None:
        super().__init__(f"priority {priority!r} is not open to you; the highest that is: {highest}")
        self.priority = priority
        self.highest = highest


class RequestIdTakenError(RequestError):
    """Another request with this id is on its way."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"a request with the id {request_id!r} is on its way; send another x-request-id, or none")
        self.request_id = request_id


class RequestNotFoundError(RequestError):
    """No request of this client with this id is on its way."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"you have no request {request_id!r} on its way; it is over, or was never here")
        self.request_id = request_id


class UnreadableAudioError(RequestError):
    """No audio could be decoded from the uploaded bytes."""


class UploadTimeoutError(RequestError):
    """The client stopped sending its upload, or takes too long over it."""

    def __init__(self, message: str, *, limit_s: float) -> None:
        super().__init__(f"{message}; send it again")
        self.limit_s = limit_s


class UploadTooLargeError(RequestError):
    """The request body holds more bytes than the server accepts."""

    def __init__(self, *, limit_bytes: int, actual_bytes: int) -> None:
        super().__init__(
            f"the upload holds at least {actual_bytes} bytes, the limit is {limit_bytes}; compress it "
            "(opus, mp3) or raise --max-upload-bytes"
        )
        self.limit_bytes = limit_bytes
        self.actual_bytes = actual_bytes


class DeadlineError(SoonerError):
    """The text cannot be there by the deadline that the client gave."""

    def __init__(self, *, deadline_s: float, late_s: float) -> None:
        super().__init__(
            f"the text cannot be there within {deadline_s:.1f} s of arrival (by prediction {late_s:.1f} s late, "
            "even if served at once from now on); allow more time or retry when less waits"
        )
        self.deadline_s = deadline_s
        self.late_s = late_s


class RequestCancelledError(SoonerError):
    """The request was cancelled by its client from elsewhere."""

    def __init__(self) -> None:
        super().__init__("the request was cancelled with DELETE /v1/queue/{id}")


class ServiceClosedError(SoonerError):
    """The server is shutting down and takes or finishes no further job."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down; send the request again to another instance or later")


class EngineError(SoonerError):
    """The engine failed while it transcribed; the job is over, the server goes on."""


class EngineLostError(EngineError):
    """The engine hangs or died; it is replaced, and what it was doing has to be begun anew.

    Attributes:
        is_cause: whether it was lost because of this window. True where that took too long; false where another
            one did, or the engine was lost before this one began; ``None`` where it died and nobody knows why.
    """

    def __init__(self, message: str, *, is_cause: bool | None = None) -> None:
        super().__init__(message)
        self.is_cause = is_cause


class ConfigurationError(SoonerError):
    """An option, a file or an installation is wrong; the message says how to mend it."""


class LearntStateError(ConfigurationError):
    """What was saved of learnt sizes cannot be used: it is damaged, of another version or another program's."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"learnt sizes: {reason}; delete or move the saved state, and they are learnt anew")


class MissingExtraError(ConfigurationError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, *, extra: str, feature: str) -> None:
        super().__init__(f"{feature} needs an optional dependency: pip install 'sooner[{extra}]'")
        self.extra = extra


class MissingVllmError(ConfigurationError):
    """The vLLM plugin is asked for where there is no vLLM."""

    def __init__(self) -> None:
        super().__init__("vLLM is not installed in this environment: pip install 'vllm==0.32.*', then try again")


class ModelUnavailableError(ConfigurationError):
    """The model asked for is not on this machine and could not be fetched, or is damaged."""


class ProfileError(ConfigurationError):
    """An engine profile is not there, or lacks a number."""

    def __init__(self, *, path: object, reason: str) -> None:
        super().__init__(f"engine profile {path}: {reason}")
        self.path = path


class RunFileError(ConfigurationError):
    """A file of measured or simulated requests cannot be read."""

    def __init__(self, *, path: object, reason: str, line: int | None = None) -> None:
        super().__init__(_in_file("run", path, line, reason))
        self.path = path
        self.line = line


class TraceError(ConfigurationError):
    """A trace cannot be read, or a line of it is not a request."""

    def __init__(self, *, path: object, reason: str, line: int | None = None) -> None:
        super().__init__(_in_file("trace", path, line, reason))
        self.path = path
        self.line = line


def _in_file(what: str, path: object, line: int | None, reason: str) -> str:
    place = "" if line is None else f", line {line}"
    return f"{what} {path}{place}: {reason}"


class UnknownPolicyError(ConfigurationError):
    """No scheduling policy is registered under this name."""

    def __init__(self, *, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"unknown scheduling policy {name!r}; known: {', '.join(self.known)}")


class UnsupportedVllmError(ConfigurationError):
    """The installed vLLM is not one that the plugin knows, or lacks something that it relies on."""

    def __init__(self, *, version: str, supported: Iterable[str] = (), seam: str | None = None) -> None:
        self.version = version
        self.seam = seam
        known = ", ".join(supported)
        reason = f"lacks {seam}, which the plugin relies on" if seam else f"is not one that it knows ({known})"
        super().__init__(
            f"Sooner's policies are not available: vLLM {version} {reason}. Install vllm==0.32.*, or a Sooner "
            "that knows this version, or serve with --scheduling-policy fcfs"
        )


class SchedulerUsageError(SoonerError):
    """The caller broke the scheduler's contract; this is a bug in the driver, not bad input."""


class DuplicateJobError(SchedulerUsageError):
    """A job with this id is already waiting or running."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} is already known; give each job an id of its own")
        self.job_id = job_id


class UnknownJobError(SchedulerUsageError):
    """No job with this id is in the state that the call needs."""

    def __init__(self, job_id: str, *, state: str) -> None:
        super().__init__(f"no {state} job has the id {job_id!r}")
        self.job_id = job_id
