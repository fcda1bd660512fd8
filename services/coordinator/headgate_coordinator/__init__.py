"""The coordinator: catalog, SQL planning and the reconciler that drives query fragments."""
