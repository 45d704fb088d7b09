"""logboom, a replicated message broker: `logboom.client` is what programs import.

Each top-level folder of the source holds one part of this package, and other distributions may hold more.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = "0.1.0"
