"""SQL92 expressions over message properties: grammar, values, evaluation."""
