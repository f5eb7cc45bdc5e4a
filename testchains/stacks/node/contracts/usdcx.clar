;; A SIP-010 token for the local chain, in the shape of the real USDCx: transfers by the owner only. Anyone may mint.
(define-fungible-token usdcx-token)
(define-constant ERR_NOT_OWNER (err u4))

(define-public (transfer (amount uint) (sender principal) (recipient principal) (memo (optional (buff 34))))
  (begin
    (asserts! (or (is-eq tx-sender sender) (is-eq contract-caller sender)) ERR_NOT_OWNER)
    (try! (ft-transfer? usdcx-token amount sender recipient))
    (match memo to-print (print to-print) 0x)
    (ok true)))

(define-public (mint (amount uint) (recipient principal))
  (ft-mint? usdcx-token amount recipient))

(define-read-only (get-name) (ok "USDCx"))
(define-read-only (get-symbol) (ok "USDCx"))
(define-read-only (get-decimals) (ok u6))
(define-read-only (get-balance (who principal)) (ok (ft-get-balance usdcx-token who)))
(define-read-only (get-total-supply) (ok (ft-get-supply usdcx-token)))
(define-read-only (get-token-uri) (ok none))
