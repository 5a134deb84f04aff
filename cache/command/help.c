/*
 * help.c - the texts that teach the program: one after another, to be read as a manual.
 */
#include "command/help.h"

/* Lines stay as they are read. */
/* clang-format off */

const char kvt_help_program[] = "\n`kvtier VERB --help` explains a verb. Results go to standard "
				"output, all else to standard\n"
				"error. Exit status: 0 all is well; 1 damage or mistakes were "
				"found; 2 the command line is\n"
				"wrong; 3 it could not be done.\n";

const char kvt_help_stat[] =
	"usage: kvtier stat [--json] [--all] FOLDER\n\n"
	"What lies in a store: its owner, format, files, log, how many chunks of how many tokens, how\n"
	"much of the disk they take, and what each tenant has of it. FOLDER is a store's own\n"
	"(PATH/FINGERPRINT/RANK) or what nvme.path names, then all stores in it are shown. Reads the\n"
	"log, not the chunks; writes nothing and takes no lock, so that a running owner is not\n"
	"disturbed and what it says is as of the moment when the log was read.\n\n"
	"  --all     every tenant, not only the ten that have most\n"
	"  --json    a list of objects instead\n\n"
	"A tenant is named by the first bytes of its hash (of the cache salt). How a running cache\n"
	"does its I/O, and why, is in its own statistics and metrics.\n";

const char kvt_help_verify[] =
	"usage: kvtier verify [OPTION...] FOLDER\n\n"
	"Reads every chunk of a store, or of all stores under FOLDER, and checks its header and its\n"
	"bytes against the checksum that was made when it was stored. Of a sealed chunk the header is\n"
	"checked. Repairs nothing: a cache drops a damaged chunk when it meets it, and never hands it\n"
	"out. Works beside a running owner; chunks that went meanwhile are no damage.\n\n"
	"  --keys FILE   the file of master keys (protect.keys)\n"
	"  --rate SIZE   reads at most so much in a second, to leave the disk to others\n"
	"  --quiet       no progress on standard error\n"
	"  --json        a list of objects instead\n\n"
	"Exit status 1: something is damaged.\n";

const char kvt_help_size[] =
	"usage: kvtier size [OPTION...] CONFIG.JSON\n\n"
	"Reads a model's config.json (or the folder that holds it) and says how many bytes of keys and\n"
	"values a token costs, how many tokens the tiers of this machine would hold, and from which\n"
	"speed on a tier saves time: B* = KV bytes per token x prefill tokens per second. Sums are\n"
	"printed with their numbers.\n\n"
	"  --prefill RATE          tokens per second that the engine computes for prompts\n"
	"  --flops F --parameters N [--utilisation U]\n"
	"                          or an estimate: U x F / (2 x N), N the parameters that a token\n"
	"                          meets (the active ones of a mixture of experts), U 0.4\n"
	"  --l1-rate R             bytes per second of CPU memory to the accelerator; else a copy by\n"
	"                          one thread is measured\n"
	"  --nvme-rate R           bytes per second of the disk\n"
	"  --path FOLDER           where the NVMe tier would lie\n"
	"  --dtype TYPE            of keys and values: bf16, fp16, fp32 or fp8; else as the file says\n"
	"  --tensor-parallel N     for each of N ranks that share the heads\n"
	"  --chunk TOKENS          of a chunk, 256\n"
	"  --context TOKENS        of a context; else the model's longest\n"
	"  --json                  one JSON object instead\n\n"
	"Numbers may end in k, M, G, T or P (thousands): --flops 989T --parameters 8G\n\n"
	"  kvtier size --prefill 12000 --nvme-rate 6G ~/models/Qwen2.5-7B-Instruct\n";

const char kvt_help_check[] =
	"usage: kvtier check [--lmcache] [--ranks N] [FILE]\n\n"
	"Reads a configuration and tells every mistake with its line and column, and what cannot work\n"
	"on this machine: more memory than there is, a folder that cannot be written, a file of keys\n"
	"that would be refused. Then prints every key with the value that would be used, and how large\n"
	"the tiers would be. Opens and changes nothing. `-` reads standard input.\n\n"
	"FILE may be LMCache's (lmcache_config.yaml), which is known by its keys; LMCACHE_* variables\n"
	"go over it. Without FILE the variables are read, LMCACHE_CONFIG_FILE among them. Then each key\n"
	"that is given is explained: honoured, mapped, ignored or refused, and what it becomes.\n\n"
	"  --lmcache   FILE is LMCache's, whatever its keys are\n"
	"  --ranks N   so many ranks run on this node; sizes are those of one rank\n\n"
	"Exit status 1: something was wrong; the cache would run with what is right.\n";

const char kvt_help_bench[] =
	"usage: kvtier bench [OPTION...]\n\n"
	"Opens a cache of its own, puts chunks into it, gets them back and throws it away: what this\n"
	"machine's memory and disk do on one thread, in a few seconds. The copy of plain memory stands\n"
	"beside it as a yardstick. Figures hold for what else the machine was doing meanwhile.\n\n"
	"  --path FOLDER    measures a disk too, in a new folder there that is removed afterwards\n"
	"  --chunk SIZE     of a chunk, 4MiB; `kvtier size` says what a model's are\n"
	"  --l1 SIZE        memory for chunks, 512MiB; at least 128MiB\n"
	"  --disk SIZE      how much is written to disk and read back, 512MiB\n"
	"  --keys FILE      sealed, by a file of master keys (protect.keys)\n"
	"  --keep           leaves the store on disk and says where it lies\n"
	"  --seconds S      how long each figure of memory is taken, 0.5\n"
	"  --json           one JSON object instead\n\n"
	"What is written is durable before its time ends; what is read was not in memory, and each of\n"
	"its bytes is checked.\n";

const char kvt_help_reference[] =
	"usage: kvtier reference [--example | --lmcache]\n\n"
	"Every key of the configuration: what it does, its default and its range, as Markdown.\n\n"
	"  --example   a YAML file instead, with every key at its default\n"
	"  --lmcache   every key of LMCache's configuration instead, and what becomes of it here\n";
