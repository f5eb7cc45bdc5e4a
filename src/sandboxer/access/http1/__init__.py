"""HTTP/1.1 as both proxies read it, inwards and outwards: strictly, and written anew."""
