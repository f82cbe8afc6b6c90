"""One module a page; each exports ``build(studio)``. Pages are strangers to each other."""
