"""Request and answer models of the public API, one file per noun. Names are a promise to clients.

`operations/` declares which of them each operation takes and answers with, and who may send it;
`docs/reference/http.md` is written from it and lists every path.

Paths of files in a query are percent-encoded bytes: names that are not UTF-8 travel unharmed.
"""
