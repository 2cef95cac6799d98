------------------------------- MODULE Direct -------------------------------
(* Symmetries for TLC of the models of direct commits. *)
EXTENDS DirectCommit, TLC

\* Which applier does something makes no difference.
Alike == Permutations(Appliers)
=============================================================================
