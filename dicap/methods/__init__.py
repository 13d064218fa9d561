"""The compared methods, one file each over one small base. `dicap.settings.catalogue.METHODS` lists what is known about them."""

from dicap.methods.base import Method
from dicap.settings import Settings


def method_class(name: str) -> type[Method]:
    """The class of a method of `dicap.settings.catalogue.METHODS`. Only its own module is imported."""
    match name:
        case "dicap":
            from dicap.methods.dicap import DiCaP as found
        case "bce":
            from dicap.methods.bce import BCE as found
        case "asl":
            from dicap.methods.asl import ASL as found
        case "mld":
            from dicap.methods.mld import MLD as found
        case "top1":
            from dicap.methods.top1 import Top1 as found
        case "topk":
            from dicap.methods.topk import Topk as found
        case "iat":
            from dicap.methods.iat import IAT as found
        case "drml":
            from dicap.methods.drml import DRML as found
        case "cap":
            from dicap.methods.cap import CAP as found
        case "pclp":
            from dicap.methods.pclp import PCLP as found
        case "bbam":
            from dicap.methods.bbam import BBAM as found
        case "d2l":
            from dicap.methods.d2l import D2L as found
        case _:
            raise KeyError(name)
    return found


def build_method(settings: Settings, classes: int, annotated: float = 1.0) -> Method:
    """The method that `settings.method` names, for C classes; `annotated`: share of the training images that have labels."""
    return method_class(settings.method)(settings, classes, settings.ratio * annotated)
