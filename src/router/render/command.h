/*
 * command.h - `kvway render -f`: makes Kubernetes objects from a manifest of SageMaker HyperPod.
 */
#ifndef KVW_RENDER_COMMAND_H
#define KVW_RENDER_COMMAND_H

#include "render/options.h"

/* argv[0] is the word `render`. Returns the program's exit status: 0 the objects were written; 1
 * the manifest has mistakes, a file is missing, or memory is short; 2 the command line is wrong. */
int kvw_render_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);

/* Does the same with texts in memory: reads `text`, writes the objects, and reports mistakes and
 * unused fields on err, in lines that begin with `name`. Returns false if nothing was written. */
bool kvw_render_text(const struct kvw_render_options *options, const char *name, const char *text,
	size_t len, FILE *out, FILE *err);

#endif
