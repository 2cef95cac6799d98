------------------------------- MODULE Topics ------------------------------
(***************************************************************************)
(* Positions that are vectors: a destination that lands a Kafka topic.     *)
(* shared/contracts/positions.py has the order, decide.py and fence.py the *)
(* comparisons. One generation; what Viaduck.tla says of crashes, zombies  *)
(* and lost answers holds as it is, since an item may be delivered at any  *)
(* time, any number of times, and an applier may stop before its end.      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Partitions, MaxOffset, MaxItems, MaxRestores, Mutant

VARIABLES
    ends,     \* the last stable offset of each partition
    cursor,   \* the stored vector
    table,    \* how often each record is in the table
    items,    \* sent, and never taken away: each may come again
    known,    \* vectors that an answer has told a reader
    saved,    \* a backup of the destination's lake
    restores,
    lied      \* whether an answer said of an item that it was applied, and it was not

vars == <<ends, cursor, table, items, known, saved, restores, lied>>

Vectors == [Partitions -> 0..MaxOffset]
Records == Partitions \X (0..MaxOffset - 1)

Zero == [p \in Partitions |-> 0]

RECURSIVE SumOver(_, _)
SumOver(vector, of) ==
    IF of = {} THEN 0 ELSE LET p == CHOOSE p \in of : TRUE IN vector[p] + SumOver(vector, of \ {p})
Sum(vector) == SumOver(vector, Partitions)

\* positions.Vector.covers: a partial order
Covers(one, other) == \A p \in Partitions : one[p] >= other[p]

\* decide.decide, of a vector: has the cursor passed the item's end, is it where the item begins?
HasPassed(item) == IF Mutant = "sums_decide" THEN Sum(cursor) >= Sum(item.end) ELSE Covers(cursor, item.end)
IsAt(item) == IF Mutant = "sums_fence" THEN Sum(cursor) = Sum(item.begin) ELSE cursor = item.begin

Init ==
    /\ ends = Zero /\ cursor = Zero
    /\ table = [record \in Records |-> 0]
    /\ items = {} /\ known = {Zero}
    /\ saved = [cursor |-> Zero, table |-> [record \in Records |-> 0]]
    /\ restores = 0 /\ lied = FALSE

\* Producers commit records.
Produce ==
    \E p \in Partitions :
        /\ ends[p] < MaxOffset
        /\ ends' = [ends EXCEPT ![p] = @ + 1]
        /\ UNCHANGED <<cursor, table, items, known, saved, restores, lied>>

\* A reader plans from any vector that it was told, up to the ends as they are: several readers look at different times.
PlanRecords ==
    \E begin \in known :
        /\ Cardinality(items) < MaxItems
        /\ Covers(ends, begin) /\ ends # begin
        /\ items' = items \cup {[begin |-> begin, end |-> ends]}
        /\ UNCHANGED <<ends, cursor, table, known, saved, restores, lied>>

\* An applier reads from where the item begins, and may stop anywhere before its end: rows and vector commit together.
ApplyRecords ==
    \E item \in items, upto \in Vectors :
        /\ ~HasPassed(item) /\ IsAt(item)
        /\ Covers(upto, item.begin) /\ Covers(item.end, upto) /\ upto # item.begin
        /\ cursor' = upto /\ known' = known \cup {upto}
        /\ table' = [r \in Records |->
             IF item.begin[r[1]] <= r[2] /\ r[2] < upto[r[1]] THEN table[r] + 1 ELSE table[r]]
        /\ UNCHANGED <<ends, items, saved, restores, lied>>

\* It says that the item was applied already, or where the cursor is instead.
AnswerVector ==
    \E item \in items :
        /\ HasPassed(item) \/ ~IsAt(item)
        /\ known' = known \cup {cursor}
        /\ lied' = (lied \/ (HasPassed(item) /\ ~Covers(cursor, item.end)))
        /\ UNCHANGED <<ends, cursor, table, items, saved, restores>>

\* The destination's owner saves the lake, and brings it back: cursor and table are one.
Save ==
    /\ restores < MaxRestores
    /\ saved' = [cursor |-> cursor, table |-> table]
    /\ UNCHANGED <<ends, cursor, table, items, known, restores, lied>>
Restore ==
    /\ restores < MaxRestores
    /\ restores' = restores + 1 /\ cursor' = saved.cursor /\ table' = saved.table
    /\ UNCHANGED <<ends, items, known, saved, lied>>

Next == Produce \/ PlanRecords \/ ApplyRecords \/ AnswerVector \/ Save \/ Restore
Spec == Init /\ [][Next]_vars

\* Each record before the vector is there once, and no other.
ExactlyOnce == \A r \in Records : table[r] = IF r[2] < cursor[r[1]] THEN 1 ELSE 0
AnswersAreTrue == ~lied
=============================================================================
