"""The consoles: a site's and a coordinator's pages in a browser, over the files that the commands use."""
