"""Routes of money: topping up, buying keys, looking at payments, what is for sale. One file for each noun."""
