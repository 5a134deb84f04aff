/*
 * must.h - what holds for every input; else the target stops where it did not.
 */
#ifndef KVB_MUST_H
#define KVB_MUST_H

#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
