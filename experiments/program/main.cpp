#include "experiments/program/cli.h"

int main(int argc, char** argv) { return foretoken::run_cli(argc, argv); }
