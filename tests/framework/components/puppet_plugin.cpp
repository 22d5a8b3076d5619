// A plugin that does what a test tells it: plugin_test.cpp sets the two pointers before it is loaded as a plugin.
extern "C" {
const char* (*puppet_abi)() = nullptr;
void (*puppet_plugin)(void* registries) = nullptr;

const char* foretoken_abi() { return puppet_abi(); }
void foretoken_plugin(void* registries) { puppet_plugin(registries); }
}
