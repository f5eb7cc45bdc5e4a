"""HTTP/1.1 as both proxies read it, inbound and outbound: messages are read strictly and written anew."""
