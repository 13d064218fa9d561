"""The software environment of a run."""

PACKAGES = ("dicap", "torch", "torchvision", "timm", "numpy", "pandas", "pyarrow", "scikit-learn", "pillow", "matplotlib")


def environment() -> dict[str, str]:
    """Versions of the software that affects results; they do not identify the machine."""
    import platform
    from importlib import metadata

    from dicap import __version__

    versions = {"system": f"{platform.system()} {platform.machine()}", "python": platform.python_version(), "dicap": __version__}
    for name in PACKAGES:
        try:
            versions.setdefault(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            versions.setdefault(name, "not installed")
    return versions
