/*
 * invariants.h - what always holds of a directory, for its tests and the fuzz target.
 */
#ifndef TESTS_COORDINATOR_INVARIANTS_H
#define TESTS_COORDINATOR_INVARIANTS_H

#include "feeds/coordinator/directory.h"

/* What is broken; NULL: nothing. Counts everything again. */
const char *coordinator_fault(const struct kvw_cd *cd);

#endif
