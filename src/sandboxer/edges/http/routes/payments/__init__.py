"""Money over HTTP: topping up, buying keys, looking at payments, what is for sale. A file for each noun."""
