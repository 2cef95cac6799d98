"""What every route shares: guard, middleware, paging, errors."""
