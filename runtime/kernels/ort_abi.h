// The part of ONNX Runtime's C ABI that xformc uses: types, the table of functions, and the description of an operator.
// Versions of ONNX Runtime only append to the table and to OrtCustomOp, so nothing here ever moves.
// tests/runtime/test_ort_abi.py compares it with ONNX Runtime's own header.
#pragma once

#include <cstddef>
#include <cstdint>

// ONNX Runtime 1.N has the versions 1 to N. This is the first one with all that is declared below: ParallelFor came with
// 17, the last members of OrtCustomOp with 18. A newer one would only shut out the ONNX Runtimes before it.
constexpr uint32_t ORT_VERSION = 18;

struct OrtAllocator;
struct OrtCustomOp;
struct OrtCustomOpDomain;
struct OrtEnv;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtShapeInferContext;
struct OrtStatus;  // null is success; the receiver of any other releases it
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;

enum OrtErrorCode {
  ORT_OK,
  ORT_FAIL,
  ORT_INVALID_ARGUMENT,
  ORT_NO_SUCHFILE,
  ORT_NO_MODEL,
  ORT_ENGINE_ERROR,
  ORT_RUNTIME_EXCEPTION,
  ORT_INVALID_PROTOBUF,
  ORT_MODEL_LOADED,
  ORT_NOT_IMPLEMENTED,
  ORT_INVALID_GRAPH,
  ORT_EP_FAIL,
};

enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE,
  ORT_LOGGING_LEVEL_INFO,
  ORT_LOGGING_LEVEL_WARNING,
  ORT_LOGGING_LEVEL_ERROR,
  ORT_LOGGING_LEVEL_FATAL,
};

enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX128,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
};

enum GraphOptimizationLevel {
  ORT_DISABLE_ALL = 0,
  ORT_ENABLE_BASIC = 1,
  ORT_ENABLE_EXTENDED = 2,
  ORT_ENABLE_ALL = 99,
};

enum OrtAllocatorType { OrtDeviceAllocator = 0, OrtArenaAllocator = 1 };

enum OrtMemType { OrtMemTypeCPUInput = -2, OrtMemTypeCPUOutput = -1, OrtMemTypeDefault = 0 };

enum OrtCustomOpInputOutputCharacteristic { INPUT_OUTPUT_REQUIRED, INPUT_OUTPUT_OPTIONAL, INPUT_OUTPUT_VARIADIC };

using OrtLoggingFunction = void (*)(void* param, OrtLoggingLevel severity, const char* category, const char* log_id,
                                    const char* code_location, const char* message);

// The entries first..last of the table, which xformc does not use.
template <size_t first, size_t last>
using Unused = void * [last - first + 1];

// The table of functions, up to the last one that is used.
struct OrtApi {
  OrtStatus* (*CreateStatus)(OrtErrorCode code, const char* message);
  OrtErrorCode (*GetErrorCode)(const OrtStatus* status);
  const char* (*GetErrorMessage)(const OrtStatus* status);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel level, const char* log_id, OrtEnv** out);
  OrtStatus* (*CreateEnvWithCustomLogger)(OrtLoggingFunction logger, void* param, OrtLoggingLevel level,
                                          const char* log_id, OrtEnv** out);
  Unused<5, 6> unused_5;
  OrtStatus* (*CreateSession)(const OrtEnv* env, const char* path, const OrtSessionOptions* options, OrtSession** out);
  Unused<8, 8> unused_8;
  OrtStatus* (*Run)(OrtSession* session, const OrtRunOptions* options, const char* const* input_names,
                    const OrtValue* const* inputs, size_t input_count, const char* const* output_names,
                    size_t output_count, OrtValue** outputs);  // an output that is null is created
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions** out);
  Unused<11, 16> unused_11;
  OrtStatus* (*DisableMemPattern)(OrtSessionOptions* options);
  Unused<18, 21> unused_18;
  OrtStatus* (*SetSessionLogSeverityLevel)(OrtSessionOptions* options, int level);
  OrtStatus* (*SetSessionGraphOptimizationLevel)(OrtSessionOptions* options, GraphOptimizationLevel level);
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions* options, int threads);
  OrtStatus* (*SetInterOpNumThreads)(OrtSessionOptions* options, int threads);
  OrtStatus* (*CreateCustomOpDomain)(const char* domain, OrtCustomOpDomain** out);
  OrtStatus* (*CustomOpDomain_Add)(OrtCustomOpDomain* domain, const OrtCustomOp* op);
  OrtStatus* (*AddCustomOpDomain)(OrtSessionOptions* options, OrtCustomOpDomain* domain);
  Unused<29, 29> unused_29;
  OrtStatus* (*SessionGetInputCount)(const OrtSession* session, size_t* out);
  OrtStatus* (*SessionGetOutputCount)(const OrtSession* session, size_t* out);
  OrtStatus* (*SessionGetOverridableInitializerCount)(const OrtSession* session, size_t* out);
  OrtStatus* (*SessionGetInputTypeInfo)(const OrtSession* session, size_t index, OrtTypeInfo** out);
  OrtStatus* (*SessionGetOutputTypeInfo)(const OrtSession* session, size_t index, OrtTypeInfo** out);
  Unused<35, 35> unused_35;
  // The caller frees a name with the allocator.
  OrtStatus* (*SessionGetInputName)(const OrtSession* session, size_t index, OrtAllocator* allocator, char** out);
  OrtStatus* (*SessionGetOutputName)(const OrtSession* session, size_t index, OrtAllocator* allocator, char** out);
  OrtStatus* (*SessionGetOverridableInitializerName)(const OrtSession* session, size_t index, OrtAllocator* allocator,
                                                     char** out);
  OrtStatus* (*CreateRunOptions)(OrtRunOptions** out);
  Unused<40, 40> unused_40;
  OrtStatus* (*RunOptionsSetRunLogSeverityLevel)(OrtRunOptions* options, int level);
  Unused<42, 45> unused_42;
  OrtStatus* (*RunOptionsSetTerminate)(OrtRunOptions* options);
  OrtStatus* (*RunOptionsUnsetTerminate)(OrtRunOptions* options);
  Unused<48, 48> unused_48;
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo* info, void* data, size_t bytes,
                                               const int64_t* shape, size_t rank, ONNXTensorElementDataType type,
                                               OrtValue** out);  // the data is the caller's
  OrtStatus* (*IsTensor)(const OrtValue* value, int* out);
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out);
  Unused<52, 54> unused_52;
  OrtStatus* (*CastTypeInfoToTensorInfo)(const OrtTypeInfo* info, const OrtTensorTypeAndShapeInfo** out);
  Unused<56, 59> unused_56;
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo* info, ONNXTensorElementDataType* out);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count);
  Unused<63, 63> unused_63;
  OrtStatus* (*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out);
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** out);
  Unused<66, 68> unused_66;
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType allocator, OrtMemType type, OrtMemoryInfo** out);
  Unused<70, 75> unused_70;
  OrtStatus* (*AllocatorFree)(OrtAllocator* allocator, void* memory);
  Unused<77, 77> unused_77;
  OrtStatus* (*GetAllocatorWithDefaultOptions)(OrtAllocator** out);  // the allocator is not the caller's
  Unused<79, 84> unused_79;
  OrtStatus* (*KernelInfoGetAttribute_float)(const OrtKernelInfo* info, const char* name, float* out);
  OrtStatus* (*KernelInfoGetAttribute_int64)(const OrtKernelInfo* info, const char* name, int64_t* out);
  // With out = null, `size` becomes the number of characters and the final null, or of elements of the array below.
  OrtStatus* (*KernelInfoGetAttribute_string)(const OrtKernelInfo* info, const char* name, char* out, size_t* size);
  OrtStatus* (*KernelContext_GetInputCount)(const OrtKernelContext* context, size_t* out);
  OrtStatus* (*KernelContext_GetOutputCount)(const OrtKernelContext* context, size_t* out);
  OrtStatus* (*KernelContext_GetInput)(const OrtKernelContext* context, size_t index, const OrtValue** out);
  OrtStatus* (*KernelContext_GetOutput)(OrtKernelContext* context, size_t index, const int64_t* shape, size_t rank,
                                        OrtValue** out);
  void (*ReleaseEnv)(OrtEnv* env);
  void (*ReleaseStatus)(OrtStatus* status);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo* info);
  void (*ReleaseSession)(OrtSession* session);
  void (*ReleaseValue)(OrtValue* value);
  void (*ReleaseRunOptions)(OrtRunOptions* options);
  void (*ReleaseTypeInfo)(OrtTypeInfo* info);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  void (*ReleaseSessionOptions)(OrtSessionOptions* options);
  void (*ReleaseCustomOpDomain)(OrtCustomOpDomain* domain);
  Unused<102, 123> unused_102;
  OrtStatus* (*AddFreeDimensionOverrideByName)(OrtSessionOptions* options, const char* name, int64_t size);
  Unused<125, 129> unused_125;
  OrtStatus* (*AddSessionConfigEntry)(OrtSessionOptions* options, const char* key, const char* value);
  Unused<131, 162> unused_131;
  OrtStatus* (*KernelInfoGetAttributeArray_int64)(const OrtKernelInfo* info, const char* name, int64_t* out,
                                                  size_t* size);
  Unused<164, 273> unused_164;
  OrtStatus* (*KernelContext_ParallelFor)(const OrtKernelContext* context, void (*work)(void* data, size_t i),
                                          size_t count, size_t batches, void* data);
};

// What the library of ONNX Runtime exports as OrtGetApiBase, and gives to RegisterCustomOps.
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);  // null if it is newer than the library
  const char* (*GetVersionString)();
};

// An operator, of version ORT_VERSION. Members may be null where this says so.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info);  // null: CreateKernelV2
  const char* (*GetName)(const OrtCustomOp* op);
  const char* (*GetExecutionProviderType)(const OrtCustomOp* op);  // returns null for the CPU
  ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp* op, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp* op);
  ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp* op, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp* op);
  void (*KernelCompute)(void* kernel, OrtKernelContext* context);  // null: KernelComputeV2
  void (*KernelDestroy)(void* kernel);
  OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(const OrtCustomOp* op, size_t index);
  OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(const OrtCustomOp* op, size_t index);
  OrtMemType (*GetInputMemoryType)(const OrtCustomOp* op, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp* op);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp* op);  // whether all of them have one type
  int (*GetVariadicOutputMinArity)(const OrtCustomOp* op);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp* op);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext* context);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp* op, OrtShapeInferContext* context);  // may be null
  int (*GetStartVersion)(const OrtCustomOp* op);  // the versions of the domain, both included
  int (*GetEndVersion)(const OrtCustomOp* op);
  size_t (*GetMayInplace)(int** inputs, int** outputs);  // may be null, as all that follow
  void (*ReleaseMayInplace)(int* inputs, int* outputs);
  size_t (*GetAliasMap)(int** inputs, int** outputs);
  void (*ReleaseAliasMap)(int* inputs, int* outputs);
};
