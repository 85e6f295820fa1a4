// From here on the names of a stage are those of the second one.
#undef INIT
#undef JOIN
#undef VALUE
#undef OTHER
#undef FOUND
#undef KNOWN
#undef KEEP
#define INIT INIT_2
#define JOIN JOIN_2
#define VALUE VALUE_2
#define OTHER OTHER_2
#define FOUND FOUND_2
#define KNOWN KNOWN_2
#define KEEP KEEP_2
