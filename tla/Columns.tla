------------------------------- MODULE Columns ------------------------------
(***************************************************************************)
(* Columns are part of what a commit carries: the owner of the source      *)
(* adds, renames, drops and replaces them, with rows in the same           *)
(* transaction or without, and a destination shows at every position the   *)
(* columns and the values that the source had there.                       *)
(* shared/lake/columns/evolution.py has the difference of two trees,       *)
(* services/applier/apply/columns/evolve.py carries it out.  One           *)
(* generation; an item is never taken away, and an applier may stand still *)
(* between any two steps while others go on.                               *)
(***************************************************************************)
EXTENDS Integers, Sequences

CONSTANTS Appliers, Names, MaxColumns, MaxSnapshots, Mutant

VARIABLES
    history,  \* the source's snapshots: its columns with the one row's values, and whether that row was written
    dest,     \* the destination: its stored position, and its columns with their values
    items,    \* positions from which an item was planned, and never taken away: each may come again
    known,    \* positions that an answer has told a reader
    job       \* what each applier has read, and not committed yet

vars == <<history, dest, items, known, job>>

Idle == [from |-> -1, upto |-> -1]
Default == 0     \* what a row shows in a column that came after it

Newest == Len(history) - 1
At(snapshot) == history[snapshot + 1]

Called(columns) == {columns[i].name : i \in 1..Len(columns)}
Without(columns, i) == [j \in 1..Len(columns) - 1 |-> IF j < i THEN columns[j] ELSE columns[j + 1]]
New(at, name) == [id |-> at.used + 1, name |-> name, cell |-> Default]

(***************************************************************************)
(* The source.  A value is the snapshot that wrote it.                     *)
(***************************************************************************)
Altered(at) ==
    LET columns == at.columns
        free == Names \ Called(columns)
    IN  {[columns EXCEPT ![i].name = name] : i \in 1..Len(columns), name \in free}
        \cup (IF Len(columns) > 1 THEN {Without(columns, i) : i \in 1..Len(columns)} ELSE {})
        \cup {Append(Without(columns, i), New(at, columns[i].name)) : i \in 1..Len(columns)}
        \cup (IF Len(columns) < MaxColumns THEN {Append(columns, New(at, name)) : name \in free} ELSE {})

Snapshot(columns, used, writes) ==
    [columns |-> [i \in 1..Len(columns) |-> IF writes THEN [columns[i] EXCEPT !.cell = Newest + 2] ELSE columns[i]],
     used |-> used, writes |-> writes]

Init ==
    /\ LET first == CHOOSE name \in Names : TRUE
            columns == <<[id |-> 1, name |-> first, cell |-> 1]>>
         IN  /\ history = <<[columns |-> columns, used |-> 1, writes |-> TRUE]>>
             /\ dest = [pos |-> 0, columns |-> <<[name |-> first, cell |-> 1]>>]
    /\ items = {} /\ known = {0}
    /\ job = [a \in Appliers |-> Idle]

\* One transaction of the owner: other columns, with the row or without.
AlterSource ==
    /\ Newest < MaxSnapshots
    /\ \E columns \in Altered(At(Newest)), writes \in BOOLEAN :
         history' = Append(history, Snapshot(columns, At(Newest).used + 1, writes))
    /\ UNCHANGED <<dest, items, known, job>>
WriteSource ==
    /\ Newest < MaxSnapshots
    /\ history' = Append(history, Snapshot(At(Newest).columns, At(Newest).used, TRUE))
    /\ UNCHANGED <<dest, items, known, job>>

(***************************************************************************)
(* The services.                                                           *)
(***************************************************************************)
\* A reader plans from any position that it was told: other columns alone make a destination lag.
PlanColumns ==
    /\ \E position \in {p \in known : p < Newest} : items' = items \cup {position}
    /\ UNCHANGED <<history, dest, known, job>>

\* An applier reads the source at its head, whatever the reader had seen.
ReadColumns ==
    /\ \E a \in Appliers, from \in items :
         job[a] = Idle /\ from < Newest /\ job' = [job EXCEPT ![a] = [from |-> from, upto |-> Newest]]
    /\ UNCHANGED <<history, dest, items, known>>

Touched(read) == \E s \in read.from + 1..read.upto : At(s).writes

\* evolution.steps_between: which column of the destination one of the source's is, by its place at the position; 0: none.
Kept(read, column) ==
    LET then == At(read.from).columns
        same == {i \in 1..Len(then) :
                   IF Mutant = "map_by_name" THEN then[i].name = column.name ELSE then[i].id = column.id}
    IN  IF same = {} THEN 0 ELSE CHOOSE i \in same : TRUE

\* Touched rows are replaced by what they are at the end; others show what they held, and the default of what is new.
Evolved(read) ==
    LET now == At(read.upto).columns
        Cell(column) ==
            IF Touched(read) THEN column.cell
            ELSE IF Kept(read, column) = 0 THEN Default
            ELSE dest.columns[Kept(read, column)].cell
    IN  IF Mutant = "position_without_columns" /\ ~Touched(read) THEN dest.columns
        ELSE [j \in 1..Len(now) |-> [name |-> now[j].name, cell |-> Cell(now[j])]]

\* Columns, rows and position are one commit, which compares and sets the position. Its answer may be lost.
CommitColumns ==
    /\ \E a \in Appliers, heard \in BOOLEAN :
         /\ job[a] # Idle /\ dest.pos = job[a].from
         /\ dest' = [pos |-> job[a].upto, columns |-> Evolved(job[a])]
         /\ job' = IF heard THEN [job EXCEPT ![a] = Idle] ELSE job
         /\ known' = IF heard THEN known \cup {job[a].upto} ELSE known
    /\ UNCHANGED <<history, items>>

\* The destination is elsewhere: nothing is changed, and its position is told.
AnswerColumns ==
    /\ \E a \in Appliers :
         /\ job[a] # Idle /\ dest.pos # job[a].from
         /\ job' = [job EXCEPT ![a] = Idle] /\ known' = known \cup {dest.pos}
    /\ UNCHANGED <<history, dest, items>>

\* An applier dies with what it has read.
Die ==
    /\ \E a \in Appliers : job[a] # Idle /\ job' = [job EXCEPT ![a] = Idle]
    /\ UNCHANGED <<history, dest, items, known>>

Next == AlterSource \/ WriteSource \/ PlanColumns \/ ReadColumns \/ CommitColumns \/ AnswerColumns \/ Die
Spec == Init /\ [][Next]_vars

Seen(columns) == [i \in 1..Len(columns) |-> [name |-> columns[i].name, cell |-> columns[i].cell]]

\* At its position a destination has the source's columns, in order, each with the value that the source shows in it.
Exact == dest.columns = Seen(At(dest.pos).columns)
PositionsOnlyGrow == [][dest'.pos >= dest.pos]_vars
=============================================================================
