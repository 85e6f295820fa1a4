// Package wire has small parts that several protocols of Chorus share:
//
//   - [ReadN] reads a payload of an announced length;
//   - [HashAdd] and [HashInts] condense what ranks compare;
//   - [AppendField] and [ReadFields] write and read small records;
//   - [RankList] and [NamedRanks] write lists of ranks for messages.
package wire
