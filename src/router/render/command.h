/*
 * command.h - `kvway render -f`: Kubernetes objects from a manifest of SageMaker HyperPod.
 */
#ifndef KVW_RENDER_COMMAND_H
#define KVW_RENDER_COMMAND_H

#include "render/options.h"

/* argv[0] is the word `render`. Returns the exit status of the program: 0 written, 1 mistakes in
 * the manifest, no file or no memory, 2 wrong usage. */
int kvw_render_command(int argc, char **argv, FILE *in, FILE *out, FILE *err);

/* All of it without files: reads `text`, writes the objects, and reports mistakes and unused fields
 * on err, in lines that begin with `name`. False: nothing was written. */
bool kvw_render_text(const struct kvw_render_options *options, const char *name, const char *text,
	size_t len, FILE *out, FILE *err);

#endif
