------------------------------- MODULE Models -------------------------------
(* Bounds for TLC: the histories of the source that the models go through. *)
EXTENDS Viaduck, TLC

To(k, d) == [key |-> k, to |-> d]

\* One snapshot, one key: its row comes.
Comes == <<<<To("k", "a")>>>>

\* The row comes, and leaves for another tenant.
ComesAndLeaves == <<<<To("k", "a"), To("k", Nobody)>>>>

\* It comes, changes, and leaves.
ComesAndGoes == <<<<To("k", "a"), To("k", "a"), To("k", Nobody)>>>>

\* Two keys in turn.
TwoKeys == <<<<To("k", "a"), To("l", "a"), To("k", "a")>>>>

\* Two tenants: a row of the one goes to the other.
MovesOnce == <<<<To("k", "a"), To("k", "b")>>>>

\* Two tenants: a row moves from one to the other and back, is deleted, another table is written in between.
Moves == <<
    <<To("k", "a"), To("l", "b"), To("k", "b"), To("k", "a")>>,
    <<To("k", "a"), To("k", "b"), Elsewhere, To("k", Nobody)>>,
    <<To("k", "b"), To("l", "a"), To("l", "b"), To("k", "a")>> >>

Unseeded == NotSeeded

\* Which applier or reader does something makes no difference.
Alike == Permutations(Appliers) \cup Permutations(Readers)
=============================================================================
