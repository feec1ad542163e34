"""What the product promises in numbers, measured."""
