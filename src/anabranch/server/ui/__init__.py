"""The web UI: pages that the server renders, for one repository (`local`) or for a service (`service_pages`).

Each page is one module and one folder of templates. A page calls the library and returns a view, which a template
renders. `site` has what all pages share: sessions, rights, forms and errors. Start reading there.
"""
