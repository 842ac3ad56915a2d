"""What doctor knows: what a dataset's files say, what is wrong with them, and what helps."""
