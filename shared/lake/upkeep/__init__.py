"""What upkeep asks of a lake's catalog: files, snapshots, and the history that is kept."""
