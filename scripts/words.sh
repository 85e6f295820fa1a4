#!/usr/bin/env bash
# Names that the code once had, and that needed a glossary: `make lint` runs this. It prints each place where one is back, as
# file:line, with the name to use, and fails. A name belongs here if it has no other meaning in the sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# old=new
names="
surrender=cancelContext
vigil=liveness
offspring=childComm
forsaken=peerLeft
fallen=failCollective
standstill=diagnoseStall
limbo=Frees
disown=releaseCall
vacate=releaseAfter
HandOver=Continue
Lot=GoroutineWaiters
Seat=Endpoint
MaxWord=MaxControl
mailbox=controlQueue
GaveUp=WaitError
Strangers=LimitListener
ErrStranger=ErrOtherUser
Guest=PendingConn
astray=misplaced
foretell=infer_outputs
kin=allChorus
keeper=poller
readByOthers=pipedOutput
openStation=openStatusServer
watchOver=startLiveness
_forms=_signatures
_theirs=_other_backend
_imagined=_fake_result
internal/short=internal/testutil
internal/piped=internal/testutil
internal/silence=internal/testutil/nettest
internal/refusal=internal/testutil/seccomptest
internal/deserter=internal/testutil/nettest
internal/publish=internal/sys
internal/spare=internal/sys
"
declare -A new
for name in $names; do new[${name%%=*}]=${name#*=}; done

pattern=$(IFS='|'; echo "${!new[*]}")
if ! found=$(git grep -nowE "$pattern" -- '*.go' '*.s' '*.py' '*.cpp' '*.c' '*.h'); then
	exit 0
fi
while IFS=: read -r file line old; do
	echo "$file:$line: $old is ${new[$old]}"
done <<<"$found"
exit 1
