"""What a run found, drawn and told: figures, text histograms, one self-contained page, tables beside the published numbers."""
