"""An owner's side of a deployment: site file, inbox, approvals, the service that answers, results."""
