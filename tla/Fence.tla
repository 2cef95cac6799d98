------------------------------- MODULE Fence -------------------------------
(***************************************************************************)
(* The destination's side of the protocol: what a stored cursor says to an *)
(* item, as services/applier/apply/cursor/decide.py and fence.py have it.  *)
(* Viaduck.tla builds the whole system around these operators, Trace.tla   *)
(* holds logs of real runs against the same ones.                          *)
(***************************************************************************)
EXTENDS Integers

NotSeeded == -1

\* A position that nobody looked up.
Unknown == -2

\* A destination without a cursor is in generation 0, which no item has. A drop takes the cursor away; what remains of it
\* is its stamp, which says in which generation the lives before were buried.
NoCursor == [gen |-> 0, pos |-> NotSeeded, buried |-> 0]
Buried(gen) == [gen |-> 0, pos |-> NotSeeded, buried |-> gen]

\* decide._decide_seed: a seed replaces an older life, and is done where its own has begun; none digs up what is buried.
DecideSeed(cursor, item) ==
    IF cursor.gen = 0 THEN IF item.gen > cursor.buried THEN "apply" ELSE "fenced"
    ELSE IF cursor.gen < item.gen THEN "apply"
    ELSE IF cursor.gen = item.gen THEN "already_applied"
    ELSE "fenced"

\* decide.decide
Decide(cursor, item) ==
    IF item.kind = "seed" THEN DecideSeed(cursor, item)
    ELSE IF cursor.gen = 0 THEN "gap"
    ELSE IF cursor.gen # item.gen THEN "fenced"
    ELSE IF item.kind = "probe" \/ cursor.pos >= item.through THEN "already_applied"
    ELSE IF cursor.pos = item.expected THEN "apply"
    ELSE "gap"

\* fence.move_cursor, fence.replace_cursor: the compare-and-set lets exactly those items through that Decide lets apply.
Passes(cursor, item) == Decide(cursor, item) = "apply"

\* What a commit makes of the cursor: it stores the item's generation, and up to where the source was read.
Moved(item, upto) == [gen |-> item.gen, pos |-> upto, buried |-> 0]
=============================================================================
