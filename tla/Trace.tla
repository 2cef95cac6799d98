------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Is what a real run left behind a behaviour of the specification?        *)
(*                                                                         *)
(* A log is what can be seen of a run from outside: the stamped snapshots  *)
(* of the destinations in their order, and the answers to the items that   *)
(* are known.  What can't be seen (which applier, what it read, when it    *)
(* looked) is left open, and one way to fill it in is enough.  The rules   *)
(* are the operators of Fence.tla, which Viaduck.tla's actions are made    *)
(* of.  A log is refused where an event comes that no action explains.     *)
(***************************************************************************)
EXTENDS Fence, Sequences, TLC

CONSTANT
    Logs    \* logs of runs: events, oldest first, each with the work item behind it where that is known

VARIABLES
    run,        \* which log is looked at
    next,       \* which event is to be explained next
    lives,      \* for each destination, every cursor that it has had, beginning with none
    tokens,     \* what snapshots carry, each once
    applied,    \* items that a snapshot names, with where they brought its destination
    newest      \* for each destination, the number of its newest commit's snapshot, as far as the log tells it

vars == <<run, next, lives, tokens, applied, newest>>

Log == Logs[run]

Names == {Log[n].destination : n \in 1..Len(Log)}

Init ==
    /\ run \in 1..Len(Logs)
    /\ next = 1
    /\ lives = [d \in Names |-> <<NoCursor>>]
    /\ tokens = {}
    /\ applied = {}
    /\ newest = [d \in Names |-> Unknown]

Now(d) == lives[d][Len(lives[d])]

\* The item behind a snapshot; one that the log does not hold began at the cursor, or else it could not have passed.
ItemOf(e) ==
    IF e.known THEN e.work
    ELSE [kind |-> e.kind, gen |-> e.gen, expected |-> Now(e.destination).pos, after |-> e.after,
          through |-> e.through, pinned |-> FALSE]

\* Viaduck.MoveCursor and Viaduck.Commit, of a seed: it begins a generation, and says which position it replaces.
Begins(e, item) == e.after = Now(e.destination).pos /\ e.through >= 0 /\ (item.pinned => e.through = item.through)

\* The same of changes: from the stored position, or from where nothing changed since, to the item's end or beyond.
Continues(e, item) ==
    /\ e.after = item.after
    /\ e.after >= Now(e.destination).pos
    /\ e.after < e.through
    /\ IF item.pinned THEN e.through = item.through ELSE e.through >= item.through

\* The same of an advance: no row, only the position.
MovesOn(e, item) == e.after = item.after /\ e.through = item.through /\ e.after = e.through

IsItsCommit(e, item) ==
    /\ e.kind = item.kind
    /\ e.gen = item.gen
    /\ Passes(Now(e.destination), item)
    /\ IF e.kind = "seed" THEN Begins(e, item)
       ELSE IF e.kind = "changes" THEN Continues(e, item)
       ELSE MovesOn(e, item)

IsNew(e) == e.token \notin tokens /\ \A done \in applied : <<e.destination, e.item>> # <<done.d, done.item>>

\* DirectCommit.LookDirect, CheckCondition and BecomeDurable: a commit of the direct path is the snapshot after its look,
\* nothing of the destination lies between the two, and what that path declines it does not commit.
FollowsItsLook(e) ==
    e.path = "direct" =>
        /\ e.kind \in {"changes", "advance"} \/ (e.kind = "seed" /\ Now(e.destination).buried = 0)
        /\ e.snapshot > newest[e.destination]
        /\ e.looked # Unknown => e.snapshot = e.looked + 1 /\ e.looked >= newest[e.destination]

Numbered(e) ==
    newest' = [newest EXCEPT ![e.destination] = IF e.snapshot = Unknown THEN @ ELSE e.snapshot]

IsCommit(e) ==
    /\ FollowsItsLook(e)
    /\ e.kind \in {"seed", "changes", "advance"}
    /\ IsItsCommit(e, ItemOf(e))
    /\ IsNew(e)

\* `= TRUE` here and below: TLC then evaluates what is before it as a value. As part of an action it would take every \A
\* apart, one call deeper for each element, and a long log would be minutes of work and more than its stack holds.
Commit(e) ==
    /\ IsCommit(e) = TRUE
    /\ lives' = [lives EXCEPT ![e.destination] = Append(@, Moved([gen |-> e.gen], e.through))]
    /\ tokens' = tokens \cup {e.token}
    /\ applied' = applied \cup {[d |-> e.destination, item |-> e.item, gen |-> e.gen, pos |-> e.through]}
    /\ Numbered(e)

\* Viaduck.TakeDrop: what there is ends with this life or one before it.
IsDrop(e) == e.kind = "drop" /\ FollowsItsLook(e) /\ Now(e.destination).gen \in 1 .. e.gen /\ IsNew(e)

Drop(e) ==
    /\ IsDrop(e) = TRUE
    /\ lives' = [lives EXCEPT ![e.destination] = Append(@, Buried(e.gen))]
    /\ tokens' = tokens \cup {e.token}
    /\ applied' = applied \cup {[d |-> e.destination, item |-> e.item, gen |-> e.gen, pos |-> NotSeeded]}
    /\ Numbered(e)

\* Making tables and compaction move nothing.
IsUpkeep(e) == e.kind \in {"provision", "maintenance"} /\ FollowsItsLook(e) /\ e.token \notin tokens

Upkeep(e) ==
    /\ IsUpkeep(e) = TRUE
    /\ tokens' = tokens \cup {e.token}
    /\ Numbered(e)
    /\ UNCHANGED <<lives, applied>>

\* Viaduck.DecideAnew and Viaduck.Take: the cursor that the applier looked at is one of those that the destination had
\* between the item's sending and the answer.
Seen(e) == {lives[e.destination][n] : n \in e.since + 1 .. Len(lives[e.destination])}

SaysApplied(e) ==
    /\ e.through = e.position \/ e.position = NotSeeded
    /\ [d |-> e.destination, item |-> e.item, gen |-> e.gen, pos |-> e.position] \in applied

SaysEmpty(e, item) == item.kind = "changes" /\ e.position = item.expected /\ e.through >= item.through

\* admit.admit fences by what control wants; that needs no look at the cursor.
SaysFenced(e, item) ==
    \/ \E cursor \in Seen(e) :
          /\ Decide(cursor, item) = "fenced"
          /\ e.gen = IF cursor.gen = 0 THEN cursor.buried + 1 ELSE cursor.gen
          /\ cursor.pos = e.position
    \/ e.gen > item.gen /\ e.position = Unknown

SaysWhereItIs(e, item) ==
    \E cursor \in Seen(e) :
        /\ cursor.pos = e.position
        /\ \/ Decide(cursor, item) = e.outcome
           \/ item.kind \in {"probe", "drop"} /\ cursor.gen = 0 /\ e.outcome = "already_applied"

Agrees(e, item) ==
    /\ e.outcome # "fenced" => e.gen = item.gen
    /\ IF e.outcome = "applied" THEN SaysApplied(e)
       ELSE IF e.outcome = "empty" THEN SaysEmpty(e, item)
       ELSE IF e.outcome = "fenced" THEN SaysFenced(e, item)
       ELSE IF e.outcome \in {"gap", "already_applied"} THEN SaysWhereItIs(e, item)
       ELSE e.outcome \in {"failed", "parked"}

\* Of an item that nobody has seen an answer says little: only that `applied` has a commit.
IsAnswer(e) == IF e.known THEN Agrees(e, e.work) ELSE e.outcome = "applied" => SaysApplied(e)

Answer(e) ==
    /\ IsAnswer(e) = TRUE
    /\ UNCHANGED <<lives, tokens, applied, newest>>

Explain ==
    /\ next <= Len(Log)
    /\ LET e == Log[next] IN IF e.event = "commit" THEN Commit(e) \/ Drop(e) \/ Upkeep(e) ELSE Answer(e)
    /\ next' = next + 1
    /\ UNCHANGED run

Spec == Init /\ [][Explain]_vars

\* That Explain is enabled; TLC takes minutes of a long log to find that out from the actions.
IsExplained(e) == IF e.event = "commit" THEN IsCommit(e) \/ IsDrop(e) \/ IsUpkeep(e) ELSE IsAnswer(e)

\* Always true; says how each log ends.
Verdict ==
    IF next > Len(Log) THEN PrintT(<<"explained", run>>)
    ELSE IsExplained(Log[next]) \/ PrintT(<<"refused", run, next>>)

\* Once more what Viaduck.tla promises, of what the log says: of each newest cursor, and each was the newest once.
PositionsOnlyGrow ==
    \A d \in DOMAIN lives : LET n == Len(lives[d]) IN
        \/ n < 2
        \/ lives[d][n].gen > lives[d][n - 1].gen
        \/ lives[d][n].gen = lives[d][n - 1].gen /\ lives[d][n].pos > lives[d][n - 1].pos
        \/ lives[d][n].gen = 0 /\ lives[d][n].buried >= lives[d][n - 1].gen
=============================================================================
