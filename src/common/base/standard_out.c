/*
 * standard_out.c - see standard_out.h.
 */
#include "base/standard_out.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool kvw_standard_out_whole(const char *program)
{
	errno = 0;
	if (fflush(stdout) == 0 && ferror(stdout) == 0)
		return true;
	fprintf(stderr, "%s: what was printed is not whole: %s\n", program,
		errno != 0 ? strerror(errno) : "standard output cannot be written");
	return false;
}
