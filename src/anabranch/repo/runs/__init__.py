"""Runs and stream batches: work whose many steps become one commit of a branch, exactly once."""
