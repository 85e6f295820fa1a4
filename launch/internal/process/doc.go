// Package process has the processes of a node: the ranks while they run, and the guard that outlives the launcher. It
// shows what ranks print, collects their exits, and says how they ended. It knows no job: package launch starts the
// ranks.
package process
