"""``viaduck source expire``: which snapshots of the source go, by what they are held, and how they go."""
