"""The machine: device, processes, progress and costs. Nothing here changes a result."""
