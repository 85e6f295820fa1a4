// Package testutil is what several packages' tests use:
//
//   - brief forms of long tests: [Short], [SkipIfShort], [Pick];
//   - waiting for a condition: [Eventually];
//   - child processes ([StartPiped]), and those of a real PyTorch ([Python], [PythonCommand]);
//   - a record of the real things that tests have run ([Ran]), for a table of the documentation;
//   - certificates ([NewCertAuthority]), and tables of the documentation ([CheckDocTables]).
//
// It imports no other package of Chorus, so that tests of the lowest ones can use it. Package nettest below it is for
// programs as well; package seccomptest below it changes what a process does when it starts.
package testutil
