"""The web UI: pages that the server renders, for one repository (`local`) or for a service (`service_pages`).

Each module has the pages of one subject. A page calls the library and returns a template with the values that it reads
as `view`. `site` has what all pages share: sessions, rights, forms and errors. Start reading there.
"""
