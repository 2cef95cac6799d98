------------------------------- MODULE Topics ------------------------------
(***************************************************************************)
(* Positions that are vectors: a destination that lands a Kafka topic,     *)
(* skips what retention took, and is rewound.                              *)
(* shared/contracts/positions.py has the order, decide.py and fence.py the *)
(* comparisons. What Viaduck.tla says of crashes, zombies and lost answers *)
(* holds as it is, since an item may be delivered at any time, any number  *)
(* of times, and an applier may stop before its end.                       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS Partitions, MaxOffset, MaxItems, MaxRestores, MaxLives, MaxLost, Mutant

VARIABLES
    ends,     \* the last stable offset of each partition
    oldest,   \* the first offset of each partition that retention left
    cursor,   \* of which life the stored vector is, the vector, and of which life the item was that moved it
    table,    \* how often each record is in the table
    skipped,  \* records that the stamps say were skipped on the way to the vector
    items,    \* sent, and never taken away: each may come again
    known,    \* lives and vectors that an answer has told a reader
    lives,    \* how many control has begun; each has a generation of its own
    saved,    \* a backup of the destination's lake
    restores,
    lied      \* whether an answer said of an item that it was applied, and it was not

vars == <<ends, oldest, cursor, table, skipped, items, known, lives, saved, restores, lied>>

Vectors == [Partitions -> 0..MaxOffset]
Records == Partitions \X (0..MaxOffset - 1)

Zero == [p \in Partitions |-> 0]

RECURSIVE SumOver(_, _)
SumOver(vector, of) ==
    IF of = {} THEN 0 ELSE LET p == CHOOSE p \in of : TRUE IN vector[p] + SumOver(vector, of \ {p})
Sum(vector) == SumOver(vector, Partitions)

\* positions.Vector.covers: a partial order
Covers(one, other) == \A p \in Partitions : one[p] >= other[p]

Before(record, vector) == record[2] < vector[record[1]]
Between(one, other) == {record \in Records : ~Before(record, one) /\ Before(record, other)}

Generation(life) == IF Mutant = "rewind_in_place" THEN 1 ELSE life

\* decide.decide, of a vector: has the cursor passed the item's end, is it where the item begins?
IsOfItsLife(item) == Mutant = "fence_without_life" \/ Generation(cursor.life) = Generation(item.life)
HasPassed(item) ==
    /\ IsOfItsLife(item)
    /\ IF Mutant = "sums_decide" THEN Sum(cursor.at) >= Sum(item.end) ELSE Covers(cursor.at, item.end)
IsAt(item) ==
    /\ IsOfItsLife(item)
    /\ IF Mutant = "sums_fence" THEN Sum(cursor.at) = Sum(item.begin) ELSE cursor.at = item.begin

\* topic_reader._require_gone: an applier asks the broker whether all that an item skips is gone.
AreGone(item) ==
    CASE Mutant = "skip_unasked" -> TRUE
      [] Mutant = "sums_gone" -> item.after = item.begin \/ Sum(oldest) >= Sum(item.after)
      [] OTHER -> \A p \in Partitions : item.after[p] > item.begin[p] => oldest[p] >= item.after[p]

\* decide._decide_seed and rewind._passed
MayRewind(item) ==
    /\ cursor.life < item.life
    /\ IF Mutant = "sums_rewind" THEN Sum(cursor.at) >= Sum(item.end) ELSE Covers(cursor.at, item.end)

MayApply(item) ==
    IF item.rewinds THEN MayRewind(item) ELSE ~HasPassed(item) /\ IsAt(item) /\ AreGone(item)

Init ==
    /\ ends = Zero /\ oldest = Zero
    /\ cursor = [life |-> 1, at |-> Zero, by |-> 1]
    /\ table = [record \in Records |-> 0] /\ skipped = {}
    /\ items = {} /\ known = {[life |-> 1, at |-> Zero]} /\ lives = 1
    /\ saved = [cursor |-> cursor, table |-> table, skipped |-> {}]
    /\ restores = 0 /\ lied = FALSE

\* Producers commit records.
Produce ==
    \E p \in Partitions :
        /\ ends[p] < MaxOffset
        /\ ends' = [ends EXCEPT ![p] = @ + 1]
        /\ UNCHANGED <<oldest, cursor, table, skipped, items, known, lives, saved, restores, lied>>

\* Retention takes records, read or not.
ExpireRecords ==
    \E p \in Partitions :
        /\ oldest[p] < ends[p] /\ Sum(oldest) < MaxLost
        /\ oldest' = [oldest EXCEPT ![p] = @ + 1]
        /\ UNCHANGED <<ends, cursor, table, skipped, items, known, lives, saved, restores, lied>>

Send(item) ==
    /\ Cardinality(items) < MaxItems
    /\ items' = items \cup {item}
    /\ UNCHANGED <<ends, oldest, cursor, table, skipped, known, saved, restores, lied>>

\* A reader plans from any vector that it was told, up to the ends as they are: several readers look at different times.
PlanRecords ==
    \E from \in known :
        /\ Covers(ends, from.at) /\ ends # from.at /\ Covers(from.at, oldest)
        /\ Send([life |-> from.life, rewinds |-> FALSE, begin |-> from.at, after |-> from.at, end |-> ends])
        /\ UNCHANGED lives

\* Records behind such a vector are gone, and the file says to go on without them. What a reader takes for the oldest
\* records that are left may be wrong.
SkipRecords ==
    \E from \in known, after \in Vectors :
        /\ MaxLost > 0 /\ ~Covers(from.at, oldest)
        /\ Covers(after, from.at) /\ after # from.at /\ Covers(ends, after)
        /\ Send([life |-> from.life, rewinds |-> FALSE, begin |-> from.at, after |-> after, end |-> ends])
        /\ UNCHANGED lives

\* An operator has the destination go back. Where it is by then control does not know.
RewindRecords ==
    \E to \in Vectors :
        /\ lives < MaxLives /\ lives' = lives + 1
        /\ Send([life |-> lives + 1, rewinds |-> TRUE, begin |-> to, after |-> to, end |-> to])

\* An applier reads from where the item begins or behind what it skips, and may stop anywhere before its end: rows, vector
\* and what was skipped commit together. What it read before retention took it still lands.
ApplyRecords ==
    \E item \in items, upto \in Vectors :
        /\ ~item.rewinds /\ MayApply(item)
        /\ Covers(upto, item.after) /\ Covers(item.end, upto) /\ upto # item.begin
        /\ cursor' = [cursor EXCEPT !.at = upto, !.by = item.life]
        /\ known' = known \cup {[life |-> cursor.life, at |-> upto]}
        /\ table' = [r \in Records |-> IF r \in Between(item.after, upto) THEN table[r] + 1 ELSE table[r]]
        /\ skipped' = IF Mutant = "skip_unstamped" THEN skipped ELSE skipped \cup Between(item.begin, item.after)
        /\ UNCHANGED <<ends, oldest, items, lives, saved, restores, lied>>

\* An applier begins a life at an older vector: the rows of the records from there on go with the cursor's move, and what
\* was skipped among them is skipped no more.
TakeBackRecords ==
    \E item \in items :
        /\ item.rewinds /\ MayApply(item)
        /\ cursor' = [life |-> item.life, at |-> item.end, by |-> item.life]
        /\ known' = known \cup {[life |-> item.life, at |-> item.end]}
        /\ table' = [r \in Records |-> IF Before(r, item.end) THEN table[r] ELSE 0]
        /\ skipped' = {r \in skipped : Before(r, item.end)}
        /\ UNCHANGED <<ends, oldest, items, lives, saved, restores, lied>>

\* It says that the item was applied already, that another life has begun, or where the cursor is instead.
AnswerVector ==
    \E item \in items :
        /\ ~MayApply(item)
        /\ known' = known \cup {[life |-> cursor.life, at |-> cursor.at]}
        /\ lied' = (lied \/ (~item.rewinds /\ HasPassed(item) /\ ~Covers(cursor.at, item.end)))
        /\ UNCHANGED <<ends, oldest, cursor, table, skipped, items, lives, saved, restores>>

\* The destination's owner saves the lake, and brings it back: cursor, stamps and table are one.
Save ==
    /\ restores < MaxRestores
    /\ saved' = [cursor |-> cursor, table |-> table, skipped |-> skipped]
    /\ UNCHANGED <<ends, oldest, cursor, table, skipped, items, known, lives, restores, lied>>
Restore ==
    /\ restores < MaxRestores
    /\ restores' = restores + 1
    /\ cursor' = saved.cursor /\ table' = saved.table /\ skipped' = saved.skipped
    /\ UNCHANGED <<ends, oldest, items, known, lives, saved, lied>>

Next ==
    \/ Produce \/ ExpireRecords \/ PlanRecords \/ SkipRecords \/ RewindRecords
    \/ ApplyRecords \/ TakeBackRecords \/ AnswerVector \/ Save \/ Restore
Spec == Init /\ [][Next]_vars

\* Each record before the vector is there once, or is counted as skipped and is not there, and no other is either.
ExactlyOnce ==
    \A r \in Records :
        /\ table[r] = IF Before(r, cursor.at) /\ r \notin skipped THEN 1 ELSE 0
        /\ r \in skipped => Before(r, cursor.at)
SkippedAreGone == \A r \in skipped : Before(r, oldest)
OldLivesAreFenced == cursor.by = cursor.life
AnswersAreTrue == ~lied

\* In every step but a restoration.
PositionsOnlyGrow ==
    [][restores' = restores =>
        LET was == Generation(cursor.life)
            is == Generation(cursor'.life)
        IN is > was \/ (is = was /\ Covers(cursor'.at, cursor.at))]_vars
=============================================================================
