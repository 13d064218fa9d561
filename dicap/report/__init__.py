"""Reports on runs: figures, text histograms, one self-contained page, tables with the published numbers."""
