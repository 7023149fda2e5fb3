"""Short runs of every task on real data, side by side, and the page that shows them."""
