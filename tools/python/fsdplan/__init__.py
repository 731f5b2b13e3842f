"""Records what the PyTorch of this environment does with FSDP, and exports models with their operators."""

from .compat import fake_process_group
from .dataflow import Description, default_loss, describe
from .errors import Refused
from .exporter import export
from .recorder import Recorder, record

__all__ = ["Description", "Recorder", "Refused", "default_loss", "describe", "export", "fake_process_group", "record"]
__version__ = "0.1.0"
