# run.sh PROGRAM: what each rank of a mixed job runs: the program as the last one, train.py as the others
if [ "$RANK" = $((WORLD_SIZE - 1)) ]; then
	exec "$1"
fi
exec "${PYTHON:-python3}" "$(dirname "$0")/train.py"
