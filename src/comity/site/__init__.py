"""An owner's own side of a deployment: its site file, the studies that arrived, what it approved, and answering."""
